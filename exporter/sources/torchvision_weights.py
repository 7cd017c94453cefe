"""How torchvision prepares photos for each of its weights for image classification.

Facts from torchvision 0.29, torchvision/models: the `transforms` of the weights, of the type ImageClassification.
"""

from __future__ import annotations

VERSION = "0.29"

# Shorter side, side of the centre, resize and scale: the names of the weights.
GROUPS: dict[tuple[int, int, str, str], str] = {
    (224, 224, "bicubic", "imagenet"): (
        "MaxVit_T_Weights.IMAGENET1K_V1 RegNet_Y_128GF_Weights.IMAGENET1K_SWAG_LINEAR_V1 "
        "RegNet_Y_16GF_Weights.IMAGENET1K_SWAG_LINEAR_V1 RegNet_Y_32GF_Weights.IMAGENET1K_SWAG_LINEAR_V1 "
        "ViT_B_16_Weights.IMAGENET1K_SWAG_LINEAR_V1 ViT_H_14_Weights.IMAGENET1K_SWAG_LINEAR_V1 "
        "ViT_L_16_Weights.IMAGENET1K_SWAG_LINEAR_V1"
    ),
    (230, 224, "bilinear", "imagenet"): ("ConvNeXt_Small_Weights.IMAGENET1K_V1"),
    (232, 224, "bicubic", "imagenet"): ("Swin_T_Weights.IMAGENET1K_V1"),
    (232, 224, "bilinear", "imagenet"): (
        "ConvNeXt_Base_Weights.IMAGENET1K_V1 ConvNeXt_Large_Weights.IMAGENET1K_V1 MNASNet0_75_Weights.IMAGENET1K_V1 "
        "MNASNet1_3_Weights.IMAGENET1K_V1 MobileNet_V2_Weights.IMAGENET1K_V2 MobileNet_V3_Large_Weights.IMAGENET1K_V2 "
        "RegNet_X_16GF_Weights.IMAGENET1K_V2 RegNet_X_1_6GF_Weights.IMAGENET1K_V2 RegNet_X_32GF_Weights.IMAGENET1K_V2 "
        "RegNet_X_3_2GF_Weights.IMAGENET1K_V2 RegNet_X_400MF_Weights.IMAGENET1K_V2 "
        "RegNet_X_800MF_Weights.IMAGENET1K_V2 RegNet_X_8GF_Weights.IMAGENET1K_V2 RegNet_Y_16GF_Weights.IMAGENET1K_V2 "
        "RegNet_Y_1_6GF_Weights.IMAGENET1K_V2 RegNet_Y_32GF_Weights.IMAGENET1K_V2 "
        "RegNet_Y_3_2GF_Weights.IMAGENET1K_V2 RegNet_Y_400MF_Weights.IMAGENET1K_V2 "
        "RegNet_Y_800MF_Weights.IMAGENET1K_V2 RegNet_Y_8GF_Weights.IMAGENET1K_V2 "
        "ResNeXt101_32X8D_QuantizedWeights.IMAGENET1K_FBGEMM_V2 ResNeXt101_32X8D_Weights.IMAGENET1K_V2 "
        "ResNeXt101_64X4D_QuantizedWeights.IMAGENET1K_FBGEMM_V1 ResNeXt101_64X4D_Weights.IMAGENET1K_V1 "
        "ResNeXt50_32X4D_Weights.IMAGENET1K_V2 ResNet101_Weights.IMAGENET1K_V2 ResNet152_Weights.IMAGENET1K_V2 "
        "ResNet50_QuantizedWeights.IMAGENET1K_FBGEMM_V2 ResNet50_Weights.IMAGENET1K_V2 "
        "ShuffleNet_V2_X1_5_QuantizedWeights.IMAGENET1K_FBGEMM_V1 ShuffleNet_V2_X1_5_Weights.IMAGENET1K_V1 "
        "ShuffleNet_V2_X2_0_QuantizedWeights.IMAGENET1K_FBGEMM_V1 ShuffleNet_V2_X2_0_Weights.IMAGENET1K_V1 "
        "Wide_ResNet101_2_Weights.IMAGENET1K_V2 Wide_ResNet50_2_Weights.IMAGENET1K_V2"
    ),
    (236, 224, "bilinear", "imagenet"): ("ConvNeXt_Tiny_Weights.IMAGENET1K_V1"),
    (238, 224, "bicubic", "imagenet"): ("Swin_B_Weights.IMAGENET1K_V1"),
    (242, 224, "bilinear", "imagenet"): ("ViT_L_16_Weights.IMAGENET1K_V1"),
    (246, 224, "bicubic", "imagenet"): ("Swin_S_Weights.IMAGENET1K_V1"),
    (256, 224, "bicubic", "imagenet"): ("EfficientNet_B0_Weights.IMAGENET1K_V1"),
    (256, 224, "bilinear", "122.99925,116.9991,103.9992:1"): ("VGG16_Weights.IMAGENET1K_FEATURES"),
    (256, 224, "bilinear", "imagenet"): (
        "AlexNet_Weights.IMAGENET1K_V1 DenseNet121_Weights.IMAGENET1K_V1 DenseNet161_Weights.IMAGENET1K_V1 "
        "DenseNet169_Weights.IMAGENET1K_V1 DenseNet201_Weights.IMAGENET1K_V1 "
        "GoogLeNet_QuantizedWeights.IMAGENET1K_FBGEMM_V1 GoogLeNet_Weights.IMAGENET1K_V1 "
        "MNASNet0_5_Weights.IMAGENET1K_V1 MNASNet1_0_Weights.IMAGENET1K_V1 "
        "MobileNet_V2_QuantizedWeights.IMAGENET1K_QNNPACK_V1 MobileNet_V2_Weights.IMAGENET1K_V1 "
        "MobileNet_V3_Large_QuantizedWeights.IMAGENET1K_QNNPACK_V1 MobileNet_V3_Large_Weights.IMAGENET1K_V1 "
        "MobileNet_V3_Small_Weights.IMAGENET1K_V1 RegNet_X_16GF_Weights.IMAGENET1K_V1 "
        "RegNet_X_1_6GF_Weights.IMAGENET1K_V1 RegNet_X_32GF_Weights.IMAGENET1K_V1 "
        "RegNet_X_3_2GF_Weights.IMAGENET1K_V1 RegNet_X_400MF_Weights.IMAGENET1K_V1 "
        "RegNet_X_800MF_Weights.IMAGENET1K_V1 RegNet_X_8GF_Weights.IMAGENET1K_V1 RegNet_Y_16GF_Weights.IMAGENET1K_V1 "
        "RegNet_Y_1_6GF_Weights.IMAGENET1K_V1 RegNet_Y_32GF_Weights.IMAGENET1K_V1 "
        "RegNet_Y_3_2GF_Weights.IMAGENET1K_V1 RegNet_Y_400MF_Weights.IMAGENET1K_V1 "
        "RegNet_Y_800MF_Weights.IMAGENET1K_V1 RegNet_Y_8GF_Weights.IMAGENET1K_V1 "
        "ResNeXt101_32X8D_QuantizedWeights.IMAGENET1K_FBGEMM_V1 ResNeXt101_32X8D_Weights.IMAGENET1K_V1 "
        "ResNeXt50_32X4D_Weights.IMAGENET1K_V1 ResNet101_Weights.IMAGENET1K_V1 ResNet152_Weights.IMAGENET1K_V1 "
        "ResNet18_QuantizedWeights.IMAGENET1K_FBGEMM_V1 ResNet18_Weights.IMAGENET1K_V1 ResNet34_Weights.IMAGENET1K_V1 "
        "ResNet50_QuantizedWeights.IMAGENET1K_FBGEMM_V1 ResNet50_Weights.IMAGENET1K_V1 "
        "ShuffleNet_V2_X0_5_QuantizedWeights.IMAGENET1K_FBGEMM_V1 ShuffleNet_V2_X0_5_Weights.IMAGENET1K_V1 "
        "ShuffleNet_V2_X1_0_QuantizedWeights.IMAGENET1K_FBGEMM_V1 ShuffleNet_V2_X1_0_Weights.IMAGENET1K_V1 "
        "SqueezeNet1_0_Weights.IMAGENET1K_V1 SqueezeNet1_1_Weights.IMAGENET1K_V1 VGG11_BN_Weights.IMAGENET1K_V1 "
        "VGG11_Weights.IMAGENET1K_V1 VGG13_BN_Weights.IMAGENET1K_V1 VGG13_Weights.IMAGENET1K_V1 "
        "VGG16_BN_Weights.IMAGENET1K_V1 VGG16_Weights.IMAGENET1K_V1 VGG19_BN_Weights.IMAGENET1K_V1 "
        "VGG19_Weights.IMAGENET1K_V1 ViT_B_16_Weights.IMAGENET1K_V1 ViT_B_32_Weights.IMAGENET1K_V1 "
        "ViT_L_32_Weights.IMAGENET1K_V1 Wide_ResNet101_2_Weights.IMAGENET1K_V1 Wide_ResNet50_2_Weights.IMAGENET1K_V1"
    ),
    (255, 240, "bilinear", "imagenet"): ("EfficientNet_B1_Weights.IMAGENET1K_V2"),
    (256, 240, "bicubic", "imagenet"): ("EfficientNet_B1_Weights.IMAGENET1K_V1"),
    (260, 256, "bicubic", "imagenet"): ("Swin_V2_S_Weights.IMAGENET1K_V1 Swin_V2_T_Weights.IMAGENET1K_V1"),
    (272, 256, "bicubic", "imagenet"): ("Swin_V2_B_Weights.IMAGENET1K_V1"),
    (288, 288, "bicubic", "imagenet"): ("EfficientNet_B2_Weights.IMAGENET1K_V1"),
    (342, 299, "bilinear", "imagenet"): (
        "Inception_V3_QuantizedWeights.IMAGENET1K_FBGEMM_V1 Inception_V3_Weights.IMAGENET1K_V1"
    ),
    (320, 300, "bicubic", "imagenet"): ("EfficientNet_B3_Weights.IMAGENET1K_V1"),
    (384, 380, "bicubic", "imagenet"): ("EfficientNet_B4_Weights.IMAGENET1K_V1"),
    (384, 384, "bicubic", "imagenet"): (
        "RegNet_Y_128GF_Weights.IMAGENET1K_SWAG_E2E_V1 RegNet_Y_16GF_Weights.IMAGENET1K_SWAG_E2E_V1 "
        "RegNet_Y_32GF_Weights.IMAGENET1K_SWAG_E2E_V1 ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1"
    ),
    (384, 384, "bilinear", "imagenet"): ("EfficientNet_V2_S_Weights.IMAGENET1K_V1"),
    (456, 456, "bicubic", "imagenet"): ("EfficientNet_B5_Weights.IMAGENET1K_V1"),
    (480, 480, "bicubic", "-1..1"): ("EfficientNet_V2_L_Weights.IMAGENET1K_V1"),
    (480, 480, "bilinear", "imagenet"): ("EfficientNet_V2_M_Weights.IMAGENET1K_V1"),
    (512, 512, "bicubic", "imagenet"): ("ViT_L_16_Weights.IMAGENET1K_SWAG_E2E_V1"),
    (518, 518, "bicubic", "imagenet"): ("ViT_H_14_Weights.IMAGENET1K_SWAG_E2E_V1"),
    (528, 528, "bicubic", "imagenet"): ("EfficientNet_B6_Weights.IMAGENET1K_V1"),
    (600, 600, "bicubic", "imagenet"): ("EfficientNet_B7_Weights.IMAGENET1K_V1"),
}


def preparation(weights: str) -> dict[str, object] | None:
    """Return the preprocessing of weights such as `ResNet50_Weights.IMAGENET1K_V2`; None if they are not known."""
    for (short, size, resize, scale), names in GROUPS.items():
        if weights in names.split():
            crop = f"short:{short}"
            values = {"size": (size, size), "crop": crop, "resize": resize, "antialias": True, "scale": scale}
            return {**values, "channels": "RGB"}
    return None
